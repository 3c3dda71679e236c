"""What Ember knows: tables of simple facts, and how one asks for them. All in the project's own words."""
from words import split


def pairs(text):
    """Lines or commas of key=value."""
    return [tuple(p.strip() for p in item.split("=", 1)) for item in split(text)]


CAPITALS = pairs("""France=Paris, Germany=Berlin, Italy=Rome, Spain=Madrid, Portugal=Lisbon, England=London
the United Kingdom=London, Scotland=Edinburgh, Wales=Cardiff, Ireland=Dublin, Austria=Vienna, Switzerland=Bern
Belgium=Brussels, the Netherlands=Amsterdam, Luxembourg=Luxembourg, Denmark=Copenhagen, Norway=Oslo, Sweden=Stockholm
Finland=Helsinki, Iceland=Reykjavik, Poland=Warsaw, Hungary=Budapest, Romania=Bucharest, Bulgaria=Sofia
Greece=Athens, Turkey=Ankara, Russia=Moscow, Ukraine=Kyiv, Estonia=Tallinn, Latvia=Riga, Lithuania=Vilnius
Croatia=Zagreb, Serbia=Belgrade, Slovenia=Ljubljana, Slovakia=Bratislava, Albania=Tirana, Malta=Valletta
Cyprus=Nicosia, Czechia=Prague, the Czech Republic=Prague, Belarus=Minsk, Moldova=Chisinau, Georgia=Tbilisi
Armenia=Yerevan, the United States=Washington, the USA=Washington, Canada=Ottawa, Mexico=Mexico City, Cuba=Havana
Jamaica=Kingston, Haiti=Port-au-Prince, Guatemala=Guatemala City, Honduras=Tegucigalpa, Panama=Panama City
Costa Rica=San Jose, Brazil=Brasilia, Argentina=Buenos Aires, Chile=Santiago, Peru=Lima, Bolivia=Sucre
Colombia=Bogota, Ecuador=Quito, Venezuela=Caracas, Uruguay=Montevideo, Paraguay=Asuncion, Egypt=Cairo, Libya=Tripoli
Tunisia=Tunis, Algeria=Algiers, Morocco=Rabat, Sudan=Khartoum, Ethiopia=Addis Ababa, Kenya=Nairobi, Uganda=Kampala
Tanzania=Dodoma, Rwanda=Kigali, Ghana=Accra, Nigeria=Abuja, Senegal=Dakar, Mali=Bamako, Zambia=Lusaka
Zimbabwe=Harare, South Africa=Pretoria, Namibia=Windhoek, Angola=Luanda, Mozambique=Maputo, Madagascar=Antananarivo
Somalia=Mogadishu, Israel=Jerusalem, Lebanon=Beirut, Syria=Damascus, Jordan=Amman, Iraq=Baghdad, Iran=Tehran
Saudi Arabia=Riyadh, Kuwait=Kuwait City, Qatar=Doha, Yemen=Sanaa, Oman=Muscat, Afghanistan=Kabul, Pakistan=Islamabad
India=New Delhi, Nepal=Kathmandu, Bhutan=Thimphu, Bangladesh=Dhaka, Sri Lanka=Colombo, Myanmar=Naypyidaw
Thailand=Bangkok, Laos=Vientiane, Cambodia=Phnom Penh, Vietnam=Hanoi, Malaysia=Kuala Lumpur, Indonesia=Jakarta
Singapore=Singapore, the Philippines=Manila, China=Beijing, Mongolia=Ulaanbaatar, North Korea=Pyongyang
South Korea=Seoul, Japan=Tokyo, Taiwan=Taipei, Australia=Canberra, New Zealand=Wellington, Fiji=Suva
Kazakhstan=Astana, Uzbekistan=Tashkent""")

CONTINENT = pairs("""France=Europe, Germany=Europe, Italy=Europe, Spain=Europe, Portugal=Europe, Poland=Europe
Norway=Europe, Sweden=Europe, Greece=Europe, Ireland=Europe, Austria=Europe, Finland=Europe, Hungary=Europe
China=Asia, Japan=Asia, India=Asia, Thailand=Asia, Vietnam=Asia, Nepal=Asia, Mongolia=Asia, Iran=Asia, Iraq=Asia
Egypt=Africa, Kenya=Africa, Nigeria=Africa, Ghana=Africa, Morocco=Africa, Ethiopia=Africa, Mali=Africa
South Africa=Africa, Brazil=South America, Argentina=South America, Chile=South America, Peru=South America
Colombia=South America, Bolivia=South America, Canada=North America, Mexico=North America
the United States=North America, Cuba=North America, Australia=Oceania, New Zealand=Oceania, Fiji=Oceania""")

LANGUAGE = pairs("""France=French, Germany=German, Italy=Italian, Spain=Spanish, Portugal=Portuguese
England=English, Poland=Polish, Norway=Norwegian, Sweden=Swedish, Denmark=Danish, Finland=Finnish, Greece=Greek
Hungary=Hungarian, Turkey=Turkish, Russia=Russian, China=Chinese, Japan=Japanese, Brazil=Portuguese, Mexico=Spanish
Argentina=Spanish, Egypt=Arabic, Austria=German, Australia=English, the Netherlands=Dutch, South Korea=Korean""")

SOUNDS = pairs("""dog=woof, cat=meow, cow=moo, sheep=baa, pig=oink, duck=quack, horse=neigh, hen=cluck, lion=roar
frog=croak, bee=buzz, owl=hoot, snake=hiss, mouse=squeak, wolf=howl, crow=caw, donkey=hee-haw, goat=bleat
bird=tweet, elephant=trumpet, rooster=cock-a-doodle-doo, goose=honk, bear=growl""")
BABIES = pairs("""dog=puppy, cat=kitten, cow=calf, sheep=lamb, pig=piglet, duck=duckling, horse=foal, hen=chick
lion=cub, bear=cub, fox=cub, wolf=cub, frog=tadpole, goat=kid, deer=fawn, goose=gosling, swan=cygnet, kangaroo=joey
owl=owlet, eagle=eaglet, rabbit=kitten, seal=pup, elephant=calf, whale=calf, butterfly=caterpillar""")
HOMES = pairs("""bird=nest, bee=hive, dog=kennel, horse=stable, spider=web, rabbit=burrow, fox=den, bear=cave
pig=sty, lion=den, ant=anthill, beaver=lodge, hen=coop, eagle=nest, mole=burrow, cow=barn""")
LEGS = pairs("""dog=four, cat=four, spider=eight, ant=six, bee=six, bird=two, horse=four, cow=four, snake=no
octopus=eight, crab=ten, butterfly=six, duck=two, elephant=four, person=two, fish=no, frog=four, hen=two, fox=four
chair=four, penguin=two, worm=no, lion=four, fly=six""")
KINDS = pairs("""dog=mammal, cat=mammal, whale=mammal, dolphin=mammal, bat=mammal, eagle=bird, owl=bird, penguin=bird
duck=bird, shark=fish, salmon=fish, trout=fish, frog=amphibian, toad=amphibian, snake=reptile, lizard=reptile
turtle=reptile, crocodile=reptile, ant=insect, bee=insect, butterfly=insect, horse=mammal, elephant=mammal
ostrich=bird, robin=bird, fly=insect, mouse=mammal, bear=mammal, lion=mammal, fox=mammal""")
FOOD_OF = pairs("""cow=grass, rabbit=grass and leaves, panda=bamboo, koala=leaves, cat=meat and fish, squirrel=nuts
horse=grass and hay, monkey=fruit and leaves, bee=nectar, owl=mice, frog=insects, lion=meat, fox=mice and berries
bear=fish and berries, elephant=grass and leaves, penguin=fish, seal=fish, sheep=grass, duck=water plants and seeds
mouse=seeds and grain, wolf=meat, spider=insects, giraffe=leaves, whale=tiny sea animals, hedgehog=insects and worms""")

COLOUR_OF = pairs("""the sky=blue, grass=green, snow=white, blood=red, a banana=yellow, a lemon=yellow, coal=black
a carrot=orange, milk=white, the sun=yellow, a strawberry=red, a leaf=green, an elephant=grey, chocolate=brown
a tomato=red, a flamingo=pink, a frog=green, a crow=black, gold=yellow, a pea=green, a cherry=red, the night=black
an orange=orange, a polar bear=white, a plum=purple, a pumpkin=orange, the sea=blue, salt=white, a rose=red
a fox=red, a cucumber=green, wood=brown, a ripe apple=red, a swan=white, a fire engine=red""")

OPPOSITES = pairs("""hot=cold, big=small, tall=short, fast=slow, up=down, left=right, day=night, black=white, good=bad
happy=sad, old=young, rich=poor, hard=soft, wet=dry, full=empty, open=closed, early=late, light=dark, high=low
strong=weak, loud=quiet, long=short, near=far, first=last, begin=end, love=hate, clean=dirty, easy=difficult
thick=thin, heavy=light, true=false, inside=outside, above=below, in=out, on=off, yes=no, north=south, east=west
war=peace, buy=sell, win=lose, push=pull, laugh=cry, sharp=blunt, wide=narrow, deep=shallow, sweet=sour
brave=afraid, cheap=expensive, safe=dangerous, same=different, smooth=rough, asleep=awake, alive=dead
friend=enemy, question=answer, summer=winter, front=back, top=bottom, come=go, give=take, always=never
many=few, more=less, before=after, warm=cool, new=old, noisy=quiet, simple=complicated, wise=foolish, polite=rude""")
PLURALS = pairs("""mouse=mice, child=children, foot=feet, tooth=teeth, goose=geese, man=men, woman=women, ox=oxen
sheep=sheep, fish=fish, deer=deer, leaf=leaves, wolf=wolves, knife=knives, baby=babies, city=cities, box=boxes
cat=cats, dog=dogs, house=houses, tree=trees, bus=buses, cherry=cherries, potato=potatoes, tomato=tomatoes
person=people, half=halves, life=lives, loaf=loaves, dish=dishes, fox=foxes, berry=berries, lady=ladies, key=keys
toy=toys, book=books, car=cars, apple=apples, watch=watches, hero=heroes, louse=lice, shelf=shelves, wife=wives
piano=pianos, day=days, story=stories, bird=birds, chair=chairs, glass=glasses, brush=brushes, thief=thieves""")
PASTS = pairs("""go=went, see=saw, eat=ate, run=ran, come=came, give=gave, take=took, make=made, write=wrote, read=read
sing=sang, swim=swam, drink=drank, think=thought, buy=bought, bring=brought, catch=caught, fly=flew, know=knew
speak=spoke, break=broke, begin=began, sleep=slept, keep=kept, find=found, hold=held, sit=sat, stand=stood, win=won
lose=lost, teach=taught, fall=fell, grow=grew, drive=drove, walk=walked, play=played, jump=jumped, help=helped
look=looked, tell=told, hear=heard, leave=left, meet=met, pay=paid, say=said, sell=sold, send=sent, be=was, have=had
do=did, get=got, feel=felt, ride=rode, wear=wore, build=built, draw=drew, cut=cut, put=put""")
RHYMES = pairs("""cat=hat, dog=frog, house=mouse, tree=bee, star=car, moon=spoon, night=light, day=play, sun=fun
rain=train, book=cook, boat=goat, king=ring, snow=glow, bell=shell, cake=lake, ball=wall, fish=dish, bear=chair
blue=shoe, red=bed, green=queen, tea=sea, time=rhyme, love=dove, fox=box, hill=mill, stone=bone, sky=fly, door=floor
hand=sand, wind=pinned, fire=wire, nose=rose, sock=clock, light=kite, bread=head, school=pool, bug=rug, plane=crane""")
TRANSLATE = {
    "French": pairs("""hello=bonjour, goodbye=au revoir, thank you=merci, yes=oui, no=non, please=s'il vous plaît
cat=chat, dog=chien, house=maison, water=eau, bread=pain, friend=ami, good morning=bonjour, good night=bonne nuit
red=rouge, blue=bleu, one=un, two=deux, three=trois, sun=soleil, book=livre, love=amour, milk=lait, tree=arbre"""),
    "Spanish": pairs("""hello=hola, goodbye=adiós, thank you=gracias, yes=sí, no=no, please=por favor, cat=gato
dog=perro, house=casa, water=agua, bread=pan, friend=amigo, good morning=buenos días, good night=buenas noches
red=rojo, blue=azul, one=uno, two=dos, three=tres, sun=sol, book=libro, love=amor, milk=leche, tree=árbol"""),
    "German": pairs("""hello=hallo, goodbye=auf Wiedersehen, thank you=danke, yes=ja, no=nein, please=bitte, cat=Katze
dog=Hund, house=Haus, water=Wasser, bread=Brot, friend=Freund, good morning=guten Morgen, good night=gute Nacht
red=rot, blue=blau, one=eins, two=zwei, three=drei, sun=Sonne, book=Buch, love=Liebe, milk=Milch, tree=Baum"""),
    "Italian": pairs("""hello=ciao, goodbye=arrivederci, thank you=grazie, yes=sì, no=no, please=per favore, cat=gatto
dog=cane, house=casa, water=acqua, bread=pane, friend=amico, good morning=buongiorno, good night=buonanotte
red=rosso, blue=blu, one=uno, two=due, three=tre, sun=sole, book=libro, love=amore, milk=latte, tree=albero"""),
}
SIDES = pairs("""triangle=three, square=four, rectangle=four, pentagon=five, hexagon=six, octagon=eight, heptagon=seven
circle=no, cube=six""")
JOB_OF = pairs("""a baker=bakes bread and cakes, a teacher=teaches children, a doctor=helps people who are ill
a farmer=grows food and keeps animals, a pilot=flies planes, a cook=prepares meals, a gardener=looks after plants
a carpenter=makes things of wood, a plumber=mends water pipes, a sailor=works on ships, a tailor=makes clothes
a vet=helps animals that are ill, a librarian=looks after books, a nurse=cares for patients, a judge=decides in court
a barber=cuts hair, a potter=makes pots of clay, a firefighter=puts out fires, a painter=paints walls or pictures
a writer=writes books, a postman=brings letters, a builder=builds houses, a miner=digs for coal or metal
an astronaut=travels into space, a scientist=studies how the world works, an engineer=plans machines and bridges""")
MADE_OF = pairs("""bread=flour and water, butter=cream, cheese=milk, glass=sand, paper=wood, wine=grapes, jam=fruit and sugar
steel=iron and a little carbon, bronze=copper and tin, wool=the hair of sheep, silk=the thread of silkworms
chocolate=cocoa beans, flour=grain, honey=nectar, leather=the skin of animals, a candle=wax, juice=fruit
ice=frozen water, chips=potatoes, raisins=dried grapes, snow=ice crystals, brick=burnt clay, rope=twisted fibres""")
USED_FOR = pairs("""a hammer=hitting nails, a saw=cutting wood, a knife=cutting, a pen=writing, a broom=sweeping the floor
a kettle=boiling water, a clock=telling the time, a key=opening locks, an umbrella=keeping off the rain
a thermometer=measuring how hot it is, a telescope=looking at far things, a microscope=looking at tiny things
a compass=finding north, a needle=sewing, a spoon=eating soup, a map=finding the way, a ladder=climbing up
a fridge=keeping food cold, an oven=baking, a lamp=giving light, a ruler=measuring length, scissors=cutting paper
a boat=crossing water, a spade=digging, a towel=drying things, soap=washing, a camera=taking pictures
a computer=working with numbers and texts, a bed=sleeping, a tent=camping""")
SCIENCE = [  # (questions with a | between them, answer)
    ("how many planets are there|how many planets does the solar system have", "There are eight planets in the solar system."),
    ("which planet is the largest|what is the biggest planet", "Jupiter is the largest planet."),
    ("which planet is the smallest|what is the smallest planet", "Mercury is the smallest planet."),
    ("which planet is closest to the sun|what planet is nearest to the sun", "Mercury is the planet closest to the sun."),
    ("which planet has rings|what planet is known for its rings", "Saturn is the planet known for its rings."),
    ("which planet is called the red planet|what is the red planet", "Mars is called the red planet."),
    ("what is the moon|tell me about the moon", "The moon is a ball of rock that goes round the earth."),
    ("what is the sun|tell me about the sun|is the sun a star", "The sun is a star. It gives the earth light and warmth."),
    ("how far is the moon|how far away is the moon", "The moon is about 384,000 kilometres away."),
    ("is the earth flat|is the earth round|what shape is the earth", "The earth is round, almost like a ball."),
    ("how long does the earth take to go round the sun|how long is a year", "The earth goes round the sun in about 365 days, which is one year."),
    ("why is there day and night|what makes day and night", "The earth turns once in 24 hours. The side that faces the sun has day, the other has night."),
    ("why is the sky blue|why does the sky look blue", "The air scatters blue light more than red light, so the sky looks blue."),
    ("why is grass green|why are leaves green|why are plants green", "Plants are green because of chlorophyll, which takes in sunlight."),
    ("what is water made of|what is the formula of water|what is h2o", "Water is H2O: hydrogen and oxygen."),
    ("at what temperature does water boil|when does water boil|how hot is boiling water", "Water boils at 100 degrees Celsius."),
    ("at what temperature does water freeze|when does water freeze", "Water freezes at 0 degrees Celsius."),
    ("what is ice|what is frozen water called", "Ice is frozen water."),
    ("what is steam|what does water become when it boils", "Steam is water as a gas."),
    ("what do plants need|what does a plant need to grow|what do plants need to live", "Plants need light, water, air and soil."),
    ("what gas do plants take in|what do plants breathe in", "Plants take in carbon dioxide and give off oxygen."),
    ("what do we breathe|which gas do people need to breathe|what gas do we need", "People need oxygen from the air."),
    ("what is air made of|what is in the air", "Air is mostly nitrogen, with about one fifth oxygen."),
    ("what is gravity|what does gravity do|why do things fall", "Gravity pulls things towards each other. It is why things fall down."),
    ("what is photosynthesis|how do plants make food", "In photosynthesis plants make sugar from light, water and carbon dioxide."),
    ("what is a rainbow|how does a rainbow form|why are there rainbows", "A rainbow forms when drops of water split sunlight into colours."),
    ("what are the colours of the rainbow|which colours does a rainbow have|name the colours of the rainbow", "The colours of the rainbow are red, orange, yellow, green, blue, indigo and violet."),
    ("what causes the tides|why are there tides|what makes the tides", "The pull of the moon makes the tides."),
    ("what is thunder|why does it thunder", "Thunder is the sound of air that lightning heats very fast."),
    ("what is lightning|what makes lightning", "Lightning is a big electric spark in the sky."),
    ("what is wind|what makes the wind", "Wind is moving air. It flows from high pressure to low pressure."),
    ("what is a cloud|what are clouds made of", "A cloud is made of tiny drops of water or bits of ice."),
    ("why does it rain|where does rain come from|what is rain", "Rain falls when drops of water in a cloud grow too heavy to float."),
    ("what is a volcano|tell me about volcanoes", "A volcano is a mountain from which hot melted rock can come out."),
    ("what is an earthquake|why does the earth shake", "An earthquake is a shaking of the ground when rock moves deep below."),
    ("what is a desert|tell me about deserts", "A desert is a place with very little rain."),
    ("what is an island|tell me about islands", "An island is land with water all around it."),
    ("what is a river|tell me about rivers", "A river is water that flows over land to the sea or a lake."),
    ("what is a mountain|tell me about mountains", "A mountain is land that rises high above the land around it."),
    ("what is a forest|tell me about forests", "A forest is a large place full of trees."),
    ("what is the highest mountain|what is the tallest mountain|which mountain is the highest", "Mount Everest is the highest mountain."),
    ("what is the longest river|which river is the longest", "The Nile is usually called the longest river."),
    ("what is the largest ocean|which ocean is the biggest", "The Pacific is the largest ocean."),
    ("what is the largest country|which country is the biggest", "Russia is the largest country."),
    ("what is the smallest country|which country is the smallest", "Vatican City is the smallest country."),
    ("what is the largest continent|which continent is the biggest", "Asia is the largest continent."),
    ("what is the coldest continent|where is it coldest", "Antarctica is the coldest continent."),
    ("what is the largest animal|which animal is the biggest", "The blue whale is the largest animal."),
    ("what is the tallest animal|which animal is the tallest", "The giraffe is the tallest animal."),
    ("what is the fastest animal|which land animal is the fastest", "The cheetah is the fastest animal on land."),
    ("what is the largest bird|which bird is the biggest", "The ostrich is the largest bird."),
    ("can penguins fly|do penguins fly", "No, penguins cannot fly, but they swim very well."),
    ("is a whale a fish|are whales fish", "No, a whale is a mammal."),
    ("is a bat a bird|are bats birds", "No, a bat is a mammal that can fly."),
    ("is a spider an insect|are spiders insects", "No, a spider is not an insect. It has eight legs."),
    ("how do bees make honey|where does honey come from", "Bees make honey from the nectar of flowers."),
    ("where does milk come from|what gives milk", "Milk comes from cows and other mammals."),
    ("where do eggs come from|what lays eggs", "Hens and other birds lay eggs."),
    ("what does a caterpillar become|what does a caterpillar turn into", "A caterpillar becomes a butterfly or a moth."),
    ("what does a tadpole become|what does a tadpole turn into", "A tadpole becomes a frog or a toad."),
    ("why do birds fly south|why do birds migrate", "Many birds fly south in autumn to find food and warmth."),
    ("why do bears sleep in winter|what is hibernation", "Hibernation is a long winter sleep. It saves energy when food is scarce."),
    ("what is a mammal|tell me about mammals", "A mammal is an animal that feeds its young with milk."),
    ("what is an insect|tell me about insects", "An insect is a small animal with six legs."),
    ("what is a reptile|tell me about reptiles", "A reptile is an animal with scales, such as a snake or a lizard."),
    ("what is a dinosaur|tell me about dinosaurs", "Dinosaurs were animals that lived many millions of years ago."),
    ("what is a fossil|tell me about fossils", "A fossil is the trace of a plant or animal in old stone."),
    ("how many bones does a person have|how many bones are in the human body", "An adult has 206 bones."),
    ("what does the heart do|what is the heart for", "The heart pumps blood through the body."),
    ("what do the lungs do|what are lungs for", "The lungs take oxygen from the air."),
    ("what does the brain do|what is the brain for", "The brain thinks, remembers and controls the body."),
    ("what does the stomach do|what is the stomach for", "The stomach breaks down food."),
    ("what is blood for|what does blood do", "Blood carries oxygen and food through the body."),
    ("how many teeth does a person have|how many teeth do adults have", "Most adults have 32 teeth."),
    ("how many fingers do we have|how many fingers does a person have", "A person has ten fingers, thumbs included."),
    ("how many senses do we have|what are the five senses|name the five senses", "The five senses are sight, hearing, smell, taste and touch."),
    ("what is an atom|tell me about atoms", "An atom is a tiny part of matter, with a nucleus and electrons."),
    ("what is electricity|tell me about electricity", "Electricity is the flow of tiny charged particles such as electrons."),
    ("what is light|how fast is light|what is the speed of light", "Light is a wave that travels at about 300,000 kilometres a second."),
    ("what is sound|how does sound travel", "Sound is a wave in air, water or solid things."),
    ("what is faster, light or sound|is light faster than sound", "Light is much faster than sound."),
    ("what is a magnet|what does a magnet do", "A magnet pulls on iron and on other magnets."),
    ("what is the hardest stone|what is the hardest natural material", "Diamond is the hardest natural material."),
    ("which metal is liquid|what metal is liquid at room temperature", "Mercury is a metal that is liquid at room temperature."),
    ("what is heavier, gold or iron|is gold heavier than iron", "Gold is heavier than iron of the same size."),
    ("does wood float|why does wood float", "Wood floats because it is lighter than the same volume of water."),
    ("does iron rust|what is rust", "Rust is what iron becomes when it meets water and air."),
    ("what is a star|tell me about stars", "A star is a huge ball of hot gas that shines."),
    ("what is a planet|tell me about planets", "A planet is a large round body that goes round a star."),
    ("what is a galaxy|what is the milky way", "A galaxy is a huge group of stars. Ours is called the Milky Way."),
    ("what is a comet|tell me about comets", "A comet is a body of ice and dust with a bright tail near the sun."),
    ("who was the first person on the moon|who first walked on the moon", "Neil Armstrong was the first person on the moon, in 1969."),
    ("who painted the mona lisa", "Leonardo da Vinci painted the Mona Lisa."),
    ("who wrote romeo and juliet|who wrote hamlet", "William Shakespeare wrote it."),
    ("who discovered gravity|who was isaac newton", "Isaac Newton described gravity in the 17th century."),
    ("who was albert einstein", "Albert Einstein was a physicist known for the theory of relativity."),
    ("who was marie curie", "Marie Curie was a scientist who studied radioactivity."),
    ("who was mozart", "Mozart was a composer from Austria."),
    ("who was charles darwin", "Charles Darwin explained how species change by natural selection."),
    ("how many days are in a week|how many days does a week have", "A week has seven days."),
    ("how many months are in a year|how many months does a year have", "A year has twelve months."),
    ("how many days are in a year|how many days does a year have", "A year has 365 days, and a leap year has 366."),
    ("how many weeks are in a year|how many weeks does a year have", "A year has 52 weeks."),
    ("how many hours are in a day|how many hours does a day have", "A day has 24 hours."),
    ("how many minutes are in an hour|how many minutes does an hour have", "An hour has 60 minutes."),
    ("how many seconds are in a minute|how many seconds does a minute have", "A minute has 60 seconds."),
    ("what is a leap year|how often is there a leap year", "A leap year has 366 days. It comes about every four years."),
    ("which month is the shortest|what is the shortest month", "February is the shortest month."),
    ("what are the seasons|name the four seasons|how many seasons are there", "The four seasons are spring, summer, autumn and winter."),
    ("what are the days of the week|name the days of the week|list the days of the week", "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    ("what are the months of the year|name the months|list the months of the year", "The months are January, February, March, April, May, June, July, August, September, October, November and December."),
    ("what are the planets|name the planets|list the planets", "The planets are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune."),
    ("how many continents are there|what are the continents|name the continents", "The seven continents are Africa, Antarctica, Asia, Europe, North America, Oceania and South America."),
    ("what are the primary colours|name the primary colours", "The primary colours are red, yellow and blue."),
    ("what are the vowels|name the vowels|which letters are vowels", "The vowels are a, e, i, o and u."),
    ("how many letters are in the alphabet|how many letters does the alphabet have", "The English alphabet has 26 letters."),
    ("say the alphabet|what is the alphabet|recite the alphabet", "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z"),
    ("how many centimetres are in a metre|how many centimetres does a metre have", "A metre has 100 centimetres."),
    ("how many metres are in a kilometre|how many metres does a kilometre have", "A kilometre has 1,000 metres."),
    ("how many grams are in a kilogram|how many grams does a kilogram have", "A kilogram has 1,000 grams."),
    ("how many degrees are in a circle|how many degrees does a circle have", "A circle has 360 degrees."),
    ("what is pi|what is the value of pi", "Pi is about 3.14159. It is the length of a circle divided by its width."),
    ("what is a dozen|how many is a dozen", "A dozen is twelve."),
    ("what is half of ten|what is half of 10", "Half of ten is five."),
    ("what is a prime number|tell me about prime numbers", "A prime number can be divided only by one and itself, such as 2, 3, 5 and 7."),
    ("what is a noun", "A noun is a word for a thing, a person or a place."),
    ("what is a verb", "A verb is a word for something one does, such as run or sing."),
    ("what is an adjective", "An adjective tells what something is like, such as big or red."),
    ("what colour do you get from blue and yellow|what do blue and yellow make|mix blue and yellow", "Blue and yellow make green."),
    ("what colour do you get from red and yellow|what do red and yellow make|mix red and yellow", "Red and yellow make orange."),
    ("what colour do you get from red and blue|what do red and blue make|mix red and blue", "Red and blue make purple."),
    ("what colour do you get from black and white|what do black and white make", "Black and white make grey."),
    ("where does the sun rise|in which direction does the sun rise", "The sun rises in the east."),
    ("where does the sun set|in which direction does the sun set", "The sun sets in the west."),
    ("what is a computer|how does a computer work", "A computer is a machine that follows programs and works with numbers."),
    ("what is a program|what is software", "A program is a list of instructions for a computer."),
    ("what is the internet", "The internet joins computers all over the world."),
    ("what is linux", "Linux is a free operating system."),
    ("what is an operating system", "An operating system runs a computer's programs and looks after its memory and devices."),
    ("what is python", "Python is a programming language. A python is also a large snake."),
    ("what is a cpu|what is a processor", "A CPU is the part of a computer that carries out programs."),
    ("what is a byte|how many bits are in a byte", "A byte is eight bits."),
    ("what is a bit", "A bit is a 0 or a 1."),
    ("what is json", "JSON is a text format for data: objects, lists, strings, numbers, true, false and null."),
    ("what is http", "HTTP is how browsers and servers talk to each other."),
    ("what is git", "Git is a program that keeps the history of files."),
    ("what is a language model|how do language models work|what is an llm", "A language model is a program that predicts the next piece of a text, again and again."),
    ("what is a token", "A token is a piece of text, such as a word or part of a word, that a language model reads."),
    ("what is a neural network", "A neural network is a program with many numbers that were learned from examples."),
    ("what is ai|what is artificial intelligence", "Artificial intelligence is the art of making machines do things that seem to need thought."),
    ("what is music", "Music is sound that is ordered in time."),
    ("what is chess", "Chess is a game for two on a board of 64 squares."),
    ("how many players does a football team have|how many players are in a football team", "A football team has eleven players."),
    ("how many strings does a violin have|how many strings are on a violin", "A violin has four strings."),
    ("how many strings does a guitar have|how many strings are on a guitar", "A guitar usually has six strings."),
    ("how many keys does a piano have|how many keys are on a piano", "A piano has 88 keys."),
    ("how many wheels does a car have", "A car has four wheels."),
    ("how many wheels does a bicycle have|how many wheels does a bike have", "A bicycle has two wheels."),
    ("is the sun hot|how hot is the sun", "Yes. The surface of the sun is about 5,500 degrees Celsius."),
    ("is fire hot|is fire dangerous", "Yes, fire is hot. Be careful with it."),
    ("is snow cold|is ice cold", "Yes, it is cold."),
    ("can fish swim|do fish swim", "Yes, fish can swim."),
    ("can pigs fly|do pigs fly", "No, pigs cannot fly."),
    ("can dogs talk|do dogs talk", "No, dogs cannot talk, but they bark."),
    ("can birds fly|do birds fly", "Yes, most birds can fly."),
    ("do fish have legs", "No, fish have no legs. They have fins."),
    ("which is bigger, a mouse or an elephant|what is bigger, an elephant or a mouse", "An elephant is much bigger than a mouse."),
    ("which came first, the chicken or the egg", "The egg, most likely: animals laid eggs long before there were chickens."),
    ("what do you do when it rains|what helps against rain", "Take an umbrella or a coat."),
    ("how do i make tea|how do you make tea", "Boil water, pour it over the tea, wait three minutes and take the tea out."),
    ("how do i boil an egg|how do you boil an egg", "Put the egg in boiling water: about five minutes for soft, ten for hard."),
    ("what does an apple taste like", "An apple tastes sweet and a little sour."),
    ("what does a lemon taste like", "A lemon tastes sour."),
    ("what does sugar taste like", "Sugar tastes sweet."),
    ("what is the meaning of life", "People have found many answers. I am too small to know the right one."),
]


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


# Each table: (name, rows, questions, answers). {k} key, {v} value, {ak} key with its article, {K} capitalised key.
TABLES = [
    ("capital", CAPITALS, ["what is the capital of {k}", "what's the capital of {k}", "capital of {k}",
                           "tell me the capital of {k}", "which city is the capital of {k}", "name the capital of {k}",
                           "do you know the capital of {k}", "what is {k}'s capital", "{k} capital",
                           "what city is the capital of {k}"],
     ["The capital of {k} is {v}."]),
    ("capital_back", [(v, k) for k, v in CAPITALS if k not in ("England", "the USA", "the Czech Republic")
                      and v != k],
     ["{k} is the capital of which country", "which country has the capital {k}", "what country is {k} the capital of"],
     ["{k} is the capital of {v}."]),
    ("continent", CONTINENT, ["on which continent is {k}", "what continent is {k} in", "where is {k}",
                              "where does {k} lie", "which continent is {k} on"], ["{K} is in {v}."]),
    ("language", LANGUAGE, ["what language do people speak in {k}", "which language is spoken in {k}",
                            "what do they speak in {k}", "language of {k}"], ["People in {k} speak {v}."]),
    ("sound", SOUNDS, ["what sound does {ak} make", "what does {ak} say", "what noise does {ak} make",
                       "which sound does {ak} make"], ["{AK} says {v}."]),
    ("baby", BABIES, ["what is a baby {k} called", "what do you call a baby {k}", "what is the young of {ak} called",
                      "name for a baby {k}", "baby {k}"], ["A baby {k} is called a {v}."]),
    ("home", HOMES, ["where does {ak} live", "what is the home of {ak} called", "what is {ak}'s home called",
                     "home of {ak}"], ["{AK} lives in a {v}."]),
    ("legs", LEGS, ["how many legs does {ak} have", "how many legs has {ak}", "number of legs of {ak}"],
     ["{AK} has {v} legs."]),
    ("kind", KINDS, ["what kind of animal is {ak}", "what is {ak}", "which kind of animal is {ak}",
                     "what type of animal is {ak}"], ["{AK} is {av}."]),
    ("food", FOOD_OF, ["what does {ak} eat", "what do {k}s eat", "what is the food of {ak}", "what can {ak} eat"],
     ["{AK} eats {v}."]),
    ("colour", COLOUR_OF, ["what colour is {k}", "what color is {k}", "which colour does {k} have",
                           "tell me the colour of {k}", "what's the color of {k}"], ["{K} is {v}."]),
    ("opposite", OPPOSITES, ["what is the opposite of {k}", "opposite of {k}", "what's the opposite of {k}",
                             "tell me the opposite of {k}", "give me the opposite of the word {k}",
                             "antonym of {k}"], ["The opposite of {k} is {v}."]),
    ("plural", PLURALS, ["what is the plural of {k}", "plural of {k}", "what's the plural of {k}",
                         "what do you call more than one {k}", "one {k}, two what"], ["The plural of {k} is {v}."]),
    ("past", PASTS, ["what is the past tense of {k}", "past tense of {k}", "what's the past of {k}",
                     "give me the past tense of {k}"], ["The past tense of {k} is {v}."]),
    ("rhyme", RHYMES, ["what rhymes with {k}", "give me a rhyme for {k}", "find a word that rhymes with {k}",
                       "tell me a word that rhymes with {k}", "a rhyme for {k}"], ["A word that rhymes with {k} is {v}."]),
    ("sides", SIDES, ["how many sides does {ak} have", "how many sides has {ak}"], ["{AK} has {v} sides."]),
    ("job", JOB_OF, ["what does {k} do", "what is the job of {k}", "what is {k}", "tell me what {k} does"],
     ["{K} {v}."]),
    ("made", MADE_OF, ["what is {k} made of", "what is {k} made from", "what's {k} made of", "how is {k} made"],
     ["{K} is made of {v}."]),
    ("used", USED_FOR, ["what is {k} used for", "what is {k} for", "what do you use {k} for",
                        "what can I do with {k}"], ["{K} is used for {v}."]),
]
